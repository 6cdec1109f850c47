// Leaves torch.accelerator to CUDA (or another accelerator that PyTorch was built with) where
// that is usable and there is no TPU: PyTorch would otherwise put a registered PrivateUse1
// device before every other, and CUDA users' streams, pinned memory and torch.accelerator
// would change hands by the mere presence of this package.
// Call once, when the package is loaded.
#pragma once

namespace torch_tpu {

// True if another accelerator is to be preferred: PyTorch was built for it, its device files are
// there, there is no TPU, and the user asked for none (TORCH_TPU_PLATFORM, TORCH_TPU_PJRT_PLUGIN).
// Initializes no driver, so that a later fork stays possible.
bool prefers_other_accelerator();

// Makes PyTorch choose its accelerator as if tpu were not registered. device="tpu" is unaffected.
// False if this PyTorch library does not let itself be told.
bool yield_accelerator();

}  // namespace torch_tpu
