"""The indexed job of docs/fleet: its pods are the parts of a sweep."""

import os
import re
import shutil
import subprocess

import yaml
from conftest import ROOT

import quarry


def test_an_indexed_job_of_kubernetes_runs_all_parts(snapshots, tmp_path):
    job = yaml.safe_load((ROOT / "docs/fleet/job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert 0 < spec["parallelism"] <= spec["completions"]
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "OnFailure"
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} <= {
        volume["name"] for volume in pod["volumes"]
    }
    (line,) = container["args"]
    count = spec["completions"]
    assert f'--shard "$JOB_COMPLETION_INDEX/{count}"' in line
    jobs = re.search(r"--jobs (\d+)", line)[1]
    assert container["resources"]["requests"]["cpu"] == jobs
    # The command's own bound leaves room below the pod's.
    memory = re.search(r"--max-memory (\d+)G", line)[1]
    assert int(memory) < int(container["resources"]["limits"]["memory"].removesuffix("Gi"))

    (tmp_path / "hosts").mkdir()
    for path in snapshots:
        shutil.copy(path, tmp_path / "hosts")
    (tmp_path / "plan.toml").write_text('input = "hosts"\nrelease = ["6.12", "7.3"]\n')
    command = os.environ["QUARRY_COMMAND"]
    path = f"{os.path.dirname(command)}:{os.environ['PATH']}"
    # As the pods run it, but as three parts, in a folder in place of the volume.
    line = line.replace("/data/", f"{tmp_path}/").replace(f"/{count}", "/3")
    for index in range(3):
        variables = {**os.environ, "PATH": path, "JOB_COMPLETION_INDEX": str(index)}
        subprocess.run([*container["command"], line], env=variables, check=True)
    again = quarry.sweep(tmp_path / "plan.toml", output=tmp_path / "results")
    assert (again.cells, again.present) == (8, 8)
