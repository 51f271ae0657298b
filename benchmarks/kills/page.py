"""The result of the kills, from what happened, and what docs/long-runs.md shows of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.kills.schedules import SCHEDULES
from podsrl.lib.logs import read_lines

Json = dict[str, Any]


def summary(folder: Path) -> Json:
    """The result of the kills in a folder."""
    lines = read_lines(folder / "kills.jsonl")
    killed, ended = [line for line in lines if "kill" in line], [line for line in lines if "end" in line]
    return {
        **json.loads((folder / "facts.json").read_text()),
        "kills": len(killed),
        "kills_of_resumed": sum(line["was_resumed"] for line in killed),
        "ends": len(ended),
        "most_kills_of_one_run": max((line["kills"] for line in ended), default=0),
        "failed": [line for line in ended if line["differences"]],
        "left_processes": sum(len(line["left_processes"]) for line in killed),
        "left_segments": sum(len(line["left_segments"]) for line in killed),
        "unfinished": dict(Counter(each for line in killed for each in line["unfinished"])),
        "schedules": {
            name: {
                "kills": sum(line["schedule"] == name for line in killed),
                "ends": sum(line["end"] == name for line in ended),
                "identical": sum(line["end"] == name and not line["differences"] for line in ended),
            }
            for name in SCHEDULES
        },
    }


def markdown(result: Json) -> str:
    """For the page."""
    found = result["schedules"]
    identical = sum(each["identical"] for each in found.values())
    different = [name for name, each in found.items() if each["identical"] < each["ends"]]
    half = ", ".join(f"{what} {num:,} times" for what, num in result["unfinished"].items())
    return (
        f"**{result['kills']:,} kills: {identical:,} of {result['ends']:,} runs that ended were bit-identical.** "
        + (f"Others were of {'; '.join(different)}. " if different else "")
        + f"They had {len(found)} schedules: {'; '.join(found)}.\n\n"
        f"{result['kills_of_resumed']:,} of the kills hit a run that had been resumed already; one run went through "
        f"{result['most_kills_of_one_run']}. In the folder was half written: {half or 'nothing'}. Left behind: "
        f"{result['left_processes']} processes, {result['left_segments']} segments of shared memory, "
        f"{len(result['temporary_files'])} temporary files.\n"
    )
