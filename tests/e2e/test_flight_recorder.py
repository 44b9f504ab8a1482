"""--flight-recorder: the collectives that ranks are in, by PyTorch's flight recorder. Its real part needs a GPU (test_gpu.py); here
the workers answer with recorded dumps, in which ranks 0 and 1 wait in an all-reduce that rank 2 has not entered."""

import json
import os

import pytest

from support import BUILD, Job, answered, clean_env, program, run, some_line

DDCTL = os.path.join(BUILD, "ddctl")
MISSING = "rank 2 has not entered all_reduce, collective 2 of default_pg, 256 KiB, in which ranks 0-1 wait"


@pytest.mark.parametrize("where", [["--nproc-per-node=3"], ["--simulate-nodes=3", "--nproc-per-node=1"]])
def test_the_report_of_a_hang_names_the_missing_rank(where, tmp_path):
    report = tmp_path / "report.json"
    job = run(*where, "--flight-recorder=on", "--stacks=on-hang", "--stacks-timeout=120s", "--hang-timeout=15s", "--shutdown-timeout=2s",
              f"--report={report}", program("flight_worker.py"))
    assert job.p.returncode in (134, 137), job.err
    assert some_line(job.err, MISSING) and some_line(job.err, "rank 2: after all_reduce, collective 1"), job.err
    with open(report) as f:
        found = {c["ranks"]: (c["waiting"], c["number"]) for c in json.load(f)["stacks"]["collectives"]}
    assert found == {"0-1": (True, 2), "2": (False, 1)}


def test_ddctl_asks_again_each_time():
    with Job("--nproc-per-node=3", "--flight-recorder=on", program("flight_worker.py")) as job:
        seen = ""
        while seen.count("ready") < 3:
            seen += job.line("ready")
        for _ in range(4):
            asked = answered([DDCTL, "stacks", "--timeout=25s", "--format=json"])
            found = json.loads(asked.stdout)
            assert {c["ranks"] for c in found["collectives"]} == {"0-1", "2"}, asked.stdout
            assert found["seconds"] < 25, "the request has waited for its timeout"
        job.p.terminate()
        job.wait()
        job.assert_nothing_left()


def test_what_a_rank_answered_before_is_not_compared_with_what_others_answer_now(tmp_path):
    silent = tmp_path / "silent"
    with Job("--nproc-per-node=3", "--flight-recorder=on", program("flight_worker.py"), env=clean_env(SILENT=str(silent))) as job:
        seen = ""
        while seen.count("ready") < 3:
            seen += job.line("ready")
        assert MISSING in answered([DDCTL, "stacks", "--timeout=25s"]).stdout
        silent.write_text("2")
        asked = answered([DDCTL, "stacks", "--timeout=2s"])
        assert "ranks 0-1: in all_reduce, collective 2" in asked.stdout, asked.stdout + asked.stderr
        assert "rank 2 has not entered" not in asked.stdout and "rank 2: after" not in asked.stdout, asked.stdout
        job.p.terminate()
        job.wait()
        job.assert_nothing_left()


def test_a_record_with_impossible_numbers_costs_no_stacks():
    with Job("--nproc-per-node=3", "--flight-recorder=on", program("flight_worker.py"), env=clean_env(IMPOSSIBLE="1")) as job:
        seen = ""
        while seen.count("ready") < 3:
            seen += job.line("ready")
        asked = answered([DDCTL, "stacks", "--timeout=25s"])
        assert "invalid" not in asked.stdout + asked.stderr, asked.stdout + asked.stderr
        assert "ranks 0-1: in all_reduce, collective 2" in asked.stdout and "flight_worker.py" in asked.stdout, asked.stdout
        job.p.terminate()
        job.wait()


def test_the_settings_of_the_user_stay():
    script = "env | grep -E 'TORCH_(FR|NCCL_DEBUG)' | sort"
    job = run("--nproc-per-node=1", "--flight-recorder=on", "sh", "-c", script, env=clean_env(TORCH_FR_DUMP_TEMP_FILE="/tmp/mine_"))
    assert job.out.split() == ["TORCH_FR_DUMP_TEMP_FILE=/tmp/mine_"], job.out
    job = run("--nproc-per-node=1", "sh", "-c", script, env=clean_env(CUDA_VISIBLE_DEVICES=""))
    assert job.out == ""  # without GPUs there is no NCCL to record
