"""``python -m torch_tpu.cli``: the command without an installed script."""

from torch_tpu.cli import main

main(prog_name="torch-tpu")
