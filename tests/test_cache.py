"""The compile cache on disk, as processes see it: each test has a folder of its own, and each step is a process."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import zipfile

import pytest
from click.testing import CliRunner
from process import ROOT, run_python

import torch_tpu
from torch_tpu.cli import main

# Programs of several kinds: pointwise, a matrix product, an update in place (donated), a random draw, a custom call.
PROGRAM = """
import json, torch, torch_tpu
torch.manual_seed(1)
x = torch.arange(12.0, device="tpu").reshape(3, 4)
y = (x @ x.T + 1).sqrt()
p = torch.ones(5, device="tpu")
for k in range(3):
    p.mul_(2).add_(k)
    p.cpu()
r = torch.rand(7, device="tpu")
w = torch.linalg.eigh((y @ y.T + torch.eye(3, device="tpu")).cpu().to("tpu"))[0]
torch.sort(r.cpu().to("tpu"))[0].cpu()
values = [t.cpu().tolist() for t in (y, p, r, w, torch.topk(x.flatten(), 3)[0])]
compiled = torch.compile(lambda a: a.exp().sum(1), backend="tpu")
values.append(compiled(x / 12).cpu().tolist())
found = torch_tpu.counters()
print(json.dumps([values, found["compiles"], found["disk_hits"], found["donations"]]))
"""
# One small program.
SMALL = """
import torch, torch_tpu
x = torch.ones(3, device="tpu").cpu() + 0
print((torch.ones(3, device="tpu") * 2).tolist(), torch_tpu.counters()["compiles"], torch_tpu.counters()["disk_hits"])
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def settings(folder, **more: str) -> dict[str, str]:
    return {"TORCH_TPU_CACHE": "1", "TORCH_TPU_CACHE_DIR": str(folder)} | more


def run(code: str, folder, **more: str) -> tuple[str, str]:
    """What ``code`` prints, and its warnings."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    env.pop("TF_CPP_MIN_LOG_LEVEL", None)  # JAX sets it where a test before has imported it
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env | settings(folder, **more),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip(), done.stderr


def entries(folder):
    return sorted(folder.glob("*.executable"))


def test_a_second_process_compiles_nothing_and_gets_the_same_numbers(folder):
    first = json.loads(run(PROGRAM, folder)[0])
    second = json.loads(run(PROGRAM, folder)[0])
    assert first[2] == 0 and first[1] > 0
    assert second[1] == 0 and second[2] == first[1]
    assert second[0] == first[0]
    assert second[3] == first[3] > 0  # donation is as it was


def test_a_program_from_disk_runs_on_every_device(folder):
    run(SMALL, folder, TORCH_TPU_DEVICE_COUNT="2")
    code = """
        import torch, torch_tpu
        x = [(torch.ones(3, device=f"tpu:{i}") * 2).tolist() for i in range(2)]
        print(x, torch_tpu.counters()["compiles"])
    """
    assert run(code, folder, TORCH_TPU_DEVICE_COUNT="2")[0] == "[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]] 0"


def test_programs_have_one_text_whatever_ran_before(folder):
    run(SMALL, folder)
    other = "import torch; (torch.zeros(9, 9, device='tpu') @ torch.zeros(9, device='tpu')).cos().cpu()\n" + SMALL
    assert run(other, folder)[0].split()[-1] == "2"  # of three programs


def test_the_folder_is_its_users_alone(folder):
    run(SMALL, folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(e.stat().st_mode) for e in entries(folder)} == {0o600}


def test_a_folder_that_others_may_write_to_is_not_used(folder):
    run(SMALL, folder)
    folder.chmod(0o770)
    out, warnings = run(SMALL, folder)
    assert out.split()[-1] == "0"
    assert warnings.count("others may write to it") == 1


def test_damaged_entries_are_compiled_again_with_one_warning_and_replaced(folder):
    code = """
        import torch, torch_tpu
        print([torch.ones(n, device="tpu").tolist() == [1.0] * n for n in range(1, 6)], torch_tpu.counters()["compiles"])
    """
    run(code, folder)
    good = [e.read_bytes() for e in entries(folder)]
    assert len(good) == 5
    flipped = bytearray(good[1])
    flipped[len(flipped) * 2 // 3] ^= 4
    for e, data in zip(entries(folder), [good[0][:-100], bytes(flipped), b"", good[4], good[4]], strict=True):
        e.write_bytes(data)
    out, warnings = run(code, folder)
    assert out == "[True, True, True, True, True] 4"
    assert warnings.count("cannot be used") == 1
    out, warnings = run(code, folder)
    assert out == "[True, True, True, True, True] 0" and not warnings
    assert len(entries(folder)) == 5


def test_a_process_killed_in_the_middle_leaves_no_damage(folder):
    code = """
        import torch
        print("ready", flush=True)
        for n in range(1, 10000):
            (torch.ones(n, device="tpu") * 3).cpu()
    """
    env = os.environ | settings(folder) | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=env, stdout=subprocess.PIPE)
    child.stdout.readline()
    while len(entries(folder)) < 5:
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert cli(folder, "verify").exit_code == 0


def test_a_folder_that_cannot_be_written_to_gives_one_warning(folder):
    # Files may not grow beyond 100 bytes, as on a full disk.
    run(SMALL, folder)
    code = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        import torch, torch_tpu
        print(torch.full((3, 3), 2.0, device="tpu").sum().item())
        torch_tpu._C.cache_drain()
        print(torch.full((2, 3), 2.0, device="tpu").sum().item())
    """
    before = entries(folder)
    out, warnings = run(code, folder)
    assert out == "18.0\n12.0"
    assert warnings.count("cannot be written to") == 1
    assert entries(folder) == before
    assert not list(folder.glob("*.unfinished"))


def test_a_missing_folder_that_cannot_be_made_gives_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    out, warnings = run(SMALL, tmp_path / "file" / "cache")
    assert out.startswith("[2.0, 2.0, 2.0]")
    assert warnings.count("is not used") == 1


def test_it_can_be_turned_off(folder):
    run(SMALL, folder, TORCH_TPU_CACHE="0")
    assert not folder.exists()


def test_a_read_only_folder_serves_and_is_not_written_to(folder, tmp_path):
    run(SMALL, folder)
    kept = {e: e.read_bytes() for e in entries(folder)}
    mine = tmp_path / "mine"
    out, _ = run(SMALL + "torch.ones(77, device='tpu').cpu()", mine, TORCH_TPU_CACHE_READONLY_DIR=str(folder))
    assert out.split()[-2] == "0"
    assert {e: e.read_bytes() for e in entries(folder)} == kept
    assert len(entries(mine)) == 1


def test_the_size_is_bounded_and_the_last_used_stay(folder):
    run("import torch\nfor n in range(1, 9): torch.ones(n, device='tpu').cpu()", folder)
    sizes = [e.stat().st_size for e in entries(folder)]
    assert len(sizes) == 8
    bound = sum(sizes) // 2
    code = """
        import torch, torch_tpu
        torch.ones(1, device="tpu").cpu()
        for n in (10, 11):
            torch.ones(n, device="tpu").cpu()
            torch_tpu._C.cache_drain()
    """
    run(code, folder, TORCH_TPU_CACHE_SIZE=str(bound))
    assert sum(e.stat().st_size for e in entries(folder)) <= bound
    again = "import torch, torch_tpu; torch.ones(1, device='tpu').cpu(); print(torch_tpu.counters()['compiles'])"
    assert run(again, folder)[0] == "0"


def test_a_size_that_is_none_is_refused():
    code = """
        import torch_tpu
        try:
            torch_tpu._C.cache_settings()
        except ValueError as error:
            print(error)
    """
    assert "TORCH_TPU_CACHE_SIZE is 5 apples" in run_python(code, TORCH_TPU_CACHE_SIZE="5 apples")


LARGE = """
import torch, torch_tpu
m = torch.nn.Sequential(*[torch.nn.Linear(32 + i, 33 + i) for i in range(24)]).to("tpu")
x = torch.ones(4, 32, device="tpu")
m(x).sum().backward()
print(m[0].weight.grad.sum().isfinite().item())
"""


def test_two_processes_at_once_leave_whole_entries(folder):
    env = os.environ | settings(folder) | {"PYTHONPATH": str(ROOT)}
    pair = [
        subprocess.Popen([sys.executable, "-c", LARGE], env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [p.communicate()[0].strip() for p in pair] == ["True", "True"]
    assert cli(folder, "verify").exit_code == 0
    assert not list(folder.glob("*.lock")) and not list(folder.glob("*.unfinished"))


def test_a_forked_child_leaves_the_cache_alone(folder):
    code = """
        import os, sys, torch
        torch.ones(3, device="tpu").cpu()
        if os.fork() == 0:
            sys.exit(0)
        print(os.wait()[1])
    """
    assert run(code, folder)[0] == "0"
    assert len(entries(folder)) == 1


def cli(folder, *arguments: str):
    return CliRunner(env=settings(folder)).invoke(main, ["cache", *arguments], catch_exceptions=False)


def test_the_command_tells_what_is_there(folder):
    run(SMALL, folder)
    found = json.loads(cli(folder, "--json").output)
    assert found["folder"] == str(folder) and found["entries"] == len(entries(folder))
    assert found["plugin"] == "can keep its programs"
    listed = json.loads(cli(folder, "list", "--json").output)
    assert {e["digest"] for e in listed} == {e.stem for e in entries(folder)}
    assert all(e["key"]["calls"] and e["compile_seconds"] > 0 for e in listed)
    assert "damaged" not in cli(folder, "list").output


def test_verify_names_damaged_entries(folder):
    run(SMALL, folder)
    assert "0 damaged" in cli(folder, "verify").output
    entries(folder)[0].write_bytes(b"nothing")
    result = cli(folder, "verify")
    assert result.exit_code == 1
    assert f"{entries(folder)[0]}: it is not a compiled program" in result.output


def test_prune_and_clear(folder):
    run(SMALL, folder)
    assert len(entries(folder)) > 1
    largest = max(e.stat().st_size for e in entries(folder))
    cli(folder, "prune", "--to", str(largest / 1e6 + 0.0001))
    assert len(entries(folder)) == 1
    cli(folder, "clear")
    assert not entries(folder)


def test_a_bundle_warms_another_machine(folder, tmp_path):
    run(SMALL, folder)
    bundle, other = tmp_path / "bundle.zip", tmp_path / "other"
    assert cli(folder, "export", str(bundle)).exit_code == 0
    assert "0 refused; 0 are for another" in cli(other, "import", str(bundle)).output
    assert run(SMALL, other)[0].split()[-2] == "0"
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_a_bad_bundle_is_refused(folder, tmp_path):
    run(SMALL, folder)
    good = entries(folder)[0]
    bundle, other = tmp_path / "bundle.zip", tmp_path / "other"
    with zipfile.ZipFile(bundle, "w") as file:
        file.writestr(good.name, good.read_bytes()[:-1])  # truncated
        file.writestr("../" + good.name, good.read_bytes())  # would be outside
        file.writestr("0" * 64 + ".executable", good.read_bytes())  # of another program
    result = cli(other, "import", str(bundle))
    assert result.exit_code == 1
    assert "0 entries taken, 3 refused" in result.output
    assert not list(tmp_path.rglob("other/*"))
    (tmp_path / "text").write_text("no zip")
    assert "is no bundle" in cli(other, "import", str(tmp_path / "text")).output


def test_a_miss_is_explained_by_the_part_that_differs(folder):
    run("import torch\nfor n in (30, 31): (torch.ones(2, n, device='tpu').cpu().to('tpu') * 2).cpu()", folder)
    output = cli(folder, "explain").output
    assert "input 0: tensor<2x30xf32> given to result 0 → tensor<2x31xf32> given to result 0" in output
    run("import torch; (torch.ones(2, 30).to('tpu') * 2).cpu()", folder, XLA_FLAGS="--xla_dump_to=")
    assert "XLA_FLAGS: nothing → --xla_dump_to=" in cli(folder, "explain", "--last", "1").output


def test_the_plugin_is_a_part_of_the_key():
    names = [name for name, _ in torch_tpu._C.cache_process_parts()]
    assert names[:4] == ["format", "plugin", "platform", "device"]
    assert "processor" in names
