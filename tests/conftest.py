"""At the end of a test run: the seconds each area took, beside what it is allotted. Nothing fails by its seconds."""

import resource
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
wall_s: Counter[str] = Counter()
cpu_s: Counter[str] = Counter()


def allotted_s() -> dict[str, int]:
    """Wall seconds of the default set on two cores, by folder of tests."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["t1core"]["test_seconds"]


def used_cpu_s() -> float:
    """CPU seconds of this process and of all its descendants that have ended and were waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    area = item.path.relative_to(ROOT / "tests").parts[0]
    began, used = time.monotonic(), used_cpu_s()
    try:
        return (yield)
    finally:
        wall_s[area] += time.monotonic() - began
        cpu_s[area] += used_cpu_s() - used


def pytest_terminal_summary(terminalreporter):
    if not wall_s:
        return
    allotted = allotted_s()
    terminalreporter.section("seconds by area")
    terminalreporter.line(f"{'area':<12}{'wall':>8}{'CPU':>8}  allotted (default set, two cores)")
    for area in sorted(wall_s):
        given = allotted.get(area, "none")
        terminalreporter.line(f"{area:<12}{wall_s[area]:>8.1f}{cpu_s[area]:>8.1f}{given:>10}")
    totals = sum(wall_s.values()), sum(cpu_s.values())
    terminalreporter.line(f"{'all':<12}{totals[0]:>8.1f}{totals[1]:>8.1f}{sum(allotted.values()):>10}")
