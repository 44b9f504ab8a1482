"""ddctl doctor names variables of the fabric's profile that the job lacks; a mount namespace has the devices of the fabric."""

import json
import os
import subprocess

import pytest

from support import BUILD, HERE, LIMIT, built_with, clean_env

DDCTL = os.path.join(BUILD, "ddctl")
PROFILES = os.path.join(HERE, "..", "..", "contrib", "profiles")
DEVICES = "mount -t tmpfs none /sys/class && mkdir -p /sys/class/cxi/cxi0"


def can_mount():
    return subprocess.run(["unshare", "-rm", "sh", "-c", DEVICES], capture_output=True, timeout=LIMIT, check=False).returncode == 0


pytestmark = [pytest.mark.skipif(not os.access(DDCTL, os.X_OK), reason=f"{DDCTL} is not built"),
              pytest.mark.skipif(not can_mount(), reason="this machine permits no mounts in user namespaces")]


def doctor(*words, program=(DDCTL, "doctor", "--format=json", f"--profiles={PROFILES}"), devices=DEVICES, gpus="0", **env):
    """Run ddctl doctor on a node with a Slingshot adapter; return its exit code and its findings about variables of libfabric and NCCL."""
    done = subprocess.run(["unshare", "-rm", "sh", "-c", f'{devices} && exec "$@"', "sh", *program, *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False,
                          env=clean_env(CUDA_VISIBLE_DEVICES=gpus, **env))
    assert done.returncode in (0, 1), done.stderr
    findings = json.loads(done.stdout)["findings"]
    return {f["what"].split()[0]: f for f in findings if f["what"].startswith(("FI_", "NCCL_"))}


def test_variables_that_are_missing_or_differ_are_hints_with_the_profiles_reason():
    found = doctor(FI_CXI_RX_MATCH_MODE="hybrid", NCCL_CROSS_NIC="0", NCCL_NET="AWS Libfabric")
    assert all(f["hint"] for f in found.values())
    assert "FI_CXI_RX_MATCH_MODE" not in found and "NCCL_NET" not in found and "NCCL_SOCKET_IFNAME" not in found
    assert found["NCCL_CROSS_NIC"]["what"] == "NCCL_CROSS_NIC is 0; the profile slingshot11.toml has 1"
    missing = found["FI_CXI_DEFAULT_CQ_SIZE"]
    assert missing["what"] == "FI_CXI_DEFAULT_CQ_SIZE is not set; the profile slingshot11.toml has 131072"
    assert missing["do"].startswith("the plug-in takes the provider's default, too small for large jobs; ")


@pytest.mark.skipif(not built_with("TOML"), reason="configure has not found toml++ (Debian: libtomlplusplus-dev)")
def test_variables_of_a_configuration_file_count_as_set(tmp_path):
    (tmp_path / "ddrun.toml").write_text('include = "fabric.toml"\n')
    with open(os.path.join(PROFILES, "slingshot11.toml"), encoding="utf-8") as f:
        (tmp_path / "fabric.toml").write_text(f.read())
    assert doctor(XDG_CONFIG_HOME=str(tmp_path)) == {}
    assert set(doctor(XDG_CONFIG_HOME=str(tmp_path), NCCL_CROSS_NIC="2")) == {"NCCL_CROSS_NIC"}


def test_nodes_without_the_fabric_or_without_gpus_get_no_advice():
    assert doctor(devices="true") == {} or os.path.exists("/sys/class/infiniband")
    assert doctor(gpus="") == {}


def test_a_directory_without_profiles_gives_no_advice(tmp_path):
    assert doctor(program=(DDCTL, "doctor", "--format=json", f"--profiles={tmp_path}")) == {}


@pytest.mark.parametrize("name, says", [("none", "No such file or directory"), ("file", "Not a directory")])
def test_what_is_no_directory_is_an_error(tmp_path, name, says):
    (tmp_path / "file").touch()
    done = subprocess.run([DDCTL, "doctor", f"--profiles={tmp_path}/{name}"], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 2 and f"--profiles: cannot open '{tmp_path}/{name}': {says}" in done.stderr
