"""A code audit of a git branch: each Python file is reviewed, and the findings become a report.

    python audit.py REPOSITORY BRANCH &   in the background, so that the same shell can kill it
    kill -9 %1                            in the middle
    python audit.py REPOSITORY BRANCH     goes on; files that were reviewed are not reviewed again

If somebody moved the branch meanwhile, it does not go on as if nothing had happened: the run parks, with exit code 5,
and shows from which commit to which. Put the branch back and start again, or go on with the branch as it is now:

    perdure resume - --accept --app audit.py

The model is made up: it knows three bad habits, and needs half a second a file to find them. Nothing in the repository
is changed; the report is report.md.
"""

import subprocess
import sys
import time
from pathlib import Path

import perdure
from perdure import resources

HABITS = {"eval(": "evaluates text as code", "except:": "catches everything", "shell=True": "hands text to a shell"}


@perdure.step
def list_files(repository: str, branch: str) -> list[str]:
    names = git(repository, "ls-tree", "-r", "--name-only", branch).splitlines()
    return [name for name in names if name.endswith(".py")]


@perdure.step
def review(file: str, repository: str, branch: str) -> list[str]:
    print(f"reviewing {file}", flush=True)
    lines = git(repository, "show", f"{branch}:{file}").splitlines()
    time.sleep(0.5)  # stands for a slow call of a model
    return [
        f"{file}:{number}: {finding}"
        for number, line in enumerate(lines, start=1)
        for habit, finding in HABITS.items()
        if habit in line
    ]


@perdure.step
def write_report(findings: list[str]) -> str:
    report = Path("report.md")
    report.write_text("# Findings\n\n" + "".join(f"- {finding}\n" for finding in findings))
    return perdure.artifact(report).name  # a copy is kept with the run


@perdure.agent
def audit(repository: str, branch: str) -> str:
    perdure.track(resources.git_branch(repository, branch))
    findings = []
    for file in list_files(repository, branch):
        findings += review(file, repository, branch)
    return f"{len(findings)} findings in {write_report(findings)}"


def git(repository: str, *arguments: str) -> str:
    return subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    print(perdure.run(audit, sys.argv[1], sys.argv[2]))
