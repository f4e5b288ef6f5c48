"""The audit of tasks by a model behind real HTTP: verdicts, repairs, what fails, going on, and the written repairs."""

import asyncio
import dataclasses
import hashlib
import json
import tomllib

import pytest

from t1core.pools.llm.audit import AuditPlan, TaskPlace, audit_task, audit_tasks, read_audit
from t1core.pools.llm.endpoint import open_endpoint
from t1core.pools.llm.model_verdict import ModelVerdict
from t1core.pools.llm.prompt import audit_messages, prompt_hash, repair_messages, task_text
from t1core.pools.llm.repaired import write_repaired
from t1core.pools.llm.report import audit_lines, verdict_line
from t1core.pools.verdict import Standing
from t1core.tasks.harbor import load_task
from t1core.tasks.practice.pool import oracle
from tests.pools.scripted_endpoint import MODEL, Say, audit_answer, scripted

CANARY = "<!-- canary 1234 -->\n"


def place(folder, *, index=0, family="write"):
    files, _ = oracle(family, seed=0, index=index, level=1)
    directory = folder / f"{family}-{index}"
    files.write(directory)
    return TaskPlace(directory.name, directory, f"hash {index}")


def judge(script, where, **plan):
    async def run():
        async with scripted(script) as server, open_endpoint(server.settings()) as endpoint:
            return await audit_task(endpoint, where, plan=AuditPlan(**plan)), server

    return asyncio.run(run())


def repair_answer(text="Write the two files as listed, one word a line."):
    return json.dumps({"instruction": text, "changes": "said one word a line"})


def test_a_good_task_is_accepted_on_what_the_model_was_shown(tmp_path):
    where = place(tmp_path)
    verdict, server = judge([Say(audit_answer(5))], where)
    assert verdict.standing == Standing.ACCEPT and verdict.repair is None and not verdict.error
    assert verdict.judgement.quality == 1.0
    assert verdict.judgement.evidence["training_value"] == "on training_value"
    system, shown = server.asked[0]["messages"]
    assert "instruction_verifier_alignment" in system["content"] and "solution_shortcut" in system["content"]
    for name in (
        "instruction.md",
        "tests/test_outputs.py",
        "solution/solve.sh",
        "environment/Dockerfile",
        "task.toml",
    ):
        assert f"=== {name}\n" in shown["content"]
    assert verdict.judgement.prompt_hash == prompt_hash(server.asked[0]["messages"])


def test_an_instruction_is_repaired_and_judged_again_with_its_provenance(tmp_path):
    where = place(tmp_path)
    old = (where.directory / "instruction.md").read_text()
    hidden = {"kind": "hidden_requirement", "quote": "def test_", "why": "the name is not said"}
    script = [Say(audit_answer(4, rejects=[hidden])), Say(repair_answer()), Say(audit_answer(5))]
    verdict, server = judge(script, where)
    assert [one.standing for one in verdict.judgements] == [Standing.REJECT, Standing.ACCEPT]
    assert verdict.standing == Standing.ACCEPT and verdict.num_kept_repairs == 1
    repair = verdict.repair
    assert repair.model == MODEL and repair.changes == "said one word a line"
    assert repair.before_sha256 == hashlib.sha256(old.encode()).hexdigest()
    assert repair.after_sha256 == hashlib.sha256(repair.instruction.encode()).hexdigest()
    assert repair.prompt_hash == prompt_hash(server.asked[1]["messages"])
    assert repair.made_at.endswith("+00:00")
    # The repair was told what is wrong; the second question shows the new instruction and the same tests.
    assert "hidden_requirement: the name is not said" in server.asked[1]["messages"][0]["content"]
    again = server.asked[2]["messages"][1]["content"]
    assert repair.instruction.strip() in again and old.strip() not in again
    assert verdict.judgements[0].prompt_hash != verdict.judgements[1].prompt_hash
    assert verdict.cost.num_calls == 3
    assert (where.directory / "instruction.md").read_text() == old  # the pool is as it was


def test_a_repair_that_does_not_raise_the_standing_is_dropped(tmp_path):
    script = [Say(audit_answer(3)), Say(repair_answer()), Say(audit_answer(3, training_value=2))]
    verdict, _ = judge(script, place(tmp_path))
    assert [str(one.standing) for one in verdict.judgements] == ["borderline", "reject"]
    assert verdict.standing == Standing.BORDERLINE and verdict.repair is None and len(verdict.repairs) == 1


@pytest.mark.parametrize("kind", ["test_leakage", "solution_shortcut", "verifier_too_weak"])
def test_what_no_instruction_can_mend_is_not_repaired(tmp_path, kind):
    reject = {"kind": kind, "quote": "def test_", "why": "so"}
    verdict, server = judge([Say(audit_answer(5, rejects=[reject]))], place(tmp_path))
    assert verdict.standing == Standing.REJECT and len(server.asked) == 1


def test_a_reason_whose_quote_is_not_in_the_task_is_no_answer(tmp_path):
    made_up = {"kind": "test_leakage", "quote": "rm -rf /", "why": "it says so"}
    verdict, server = judge([Say(audit_answer(5, rejects=[made_up])), Say(audit_answer(5))], place(tmp_path))
    assert verdict.standing == Standing.ACCEPT and verdict.cost.failures == {"invalid": 1}
    assert "does not stand in the task's files" in server.asked[1]["messages"][-1]["content"]


def test_a_repair_that_copies_the_tests_or_changes_nothing_is_asked_for_again(tmp_path):
    where = place(tmp_path)
    line = max((where.directory / "tests/test_outputs.py").read_text().splitlines(), key=len).strip()
    old = (where.directory / "instruction.md").read_text()
    script = [
        Say(audit_answer(3)),
        Say(repair_answer(f"Do it so that {line}")),
        Say(repair_answer(old)),
        Say(repair_answer()),
        Say(audit_answer(5)),
    ]
    verdict, server = judge(script, where)
    assert verdict.standing == Standing.ACCEPT and verdict.cost.failures == {"invalid": 2}
    assert "copies code of the tests" in server.asked[2]["messages"][-1]["content"]
    assert "is the old one" in server.asked[3]["messages"][-1]["content"]


def test_no_answer_is_a_failure_with_its_cost_and_an_earlier_judgement_still_counts(tmp_path):
    where = place(tmp_path)
    verdict, _ = judge([Say("hm")] * 2, where, max_retries=1)
    assert verdict.standing == "failed" and verdict.judgement is None
    assert verdict.error.startswith("audit: no valid answer in 2") and verdict.error_kind == "no_json"
    assert verdict.cost.completion_tokens == 20
    half, _ = judge([Say(audit_answer(3)), Say("hm")], where, max_retries=0)
    assert half.standing == Standing.BORDERLINE and half.error.startswith("repair: ")
    late, _ = judge([Say(audit_answer(3)), Say(repair_answer()), Say("hm")], where, max_retries=0)
    assert late.standing == Standing.BORDERLINE and late.error.startswith("audit after a repair: ")
    assert late.repair is None


def test_a_verdict_comes_back_from_its_line_as_it_was(tmp_path):
    script = [Say(audit_answer(3)), Say(repair_answer()), Say(audit_answer(5))]
    verdict, _ = judge(script, place(tmp_path))
    assert ModelVerdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def audit(answer, places, output, **settings):
    """(what the server noted, the verdicts that were told)."""
    said = []

    async def run():
        async with scripted(answer) as server, open_endpoint(server.settings(**settings)) as endpoint:
            plan = AuditPlan(max_repairs=0, max_retries=0, num_parallel=2)
            await audit_tasks(endpoint, places, plan=plan, output=output, say=said.append)
            return server

    return asyncio.run(run()), said


def by_instruction(places, texts):
    """Answers by which task is asked about: several are asked at once, in whatever order."""
    shown = {(one.directory / "instruction.md").read_text().strip(): one.task_id for one in places}

    def answer(body):
        (name,) = [name for text, name in shown.items() if text in body["messages"][1]["content"]]
        return texts[name]

    return answer


def test_an_audit_goes_on_after_the_last_whole_line_and_does_failures_again(tmp_path):
    places = [place(tmp_path / "pool", index=i) for i in range(4)]
    output = tmp_path / "out" / "audit.jsonl"
    good, bad = Say(audit_answer(5)), Say("hm")
    answers = {"write-0": good, "write-1": bad, "write-2": good, "write-3": good}
    server, said = audit(by_instruction(places, answers), places[:3], output)
    assert len(server.asked) == 3 and sorted(v.task_id for v in said) == ["write-0", "write-1", "write-2"]
    with output.open("a") as file:
        file.write('{"task_id": "write-3", "stan')  # killed in mid-write
    changed = [dataclasses.replace(places[2], content_hash="another"), places[3]]
    answers["write-1"] = good
    server, said = audit(by_instruction(places, answers), [*places[:2], *changed], output)
    # Not write-0; again the one that failed and the one whose files changed; the torn line is no verdict.
    assert sorted(v.task_id for v in said) == ["write-1", "write-2", "write-3"] and len(server.asked) == 3
    head, verdicts = read_audit(output)
    assert head["model"] == MODEL
    assert {v.task_id: v.standing for v in verdicts} == {f"write-{i}": "accept" for i in range(4)}
    # What was spent in vain, or on files that have changed since, stays in the sum.
    assert {v.task_id: v.cost.num_calls for v in verdicts} == {
        "write-0": 1,
        "write-1": 2,
        "write-2": 2,
        "write-3": 1,
    }


def test_another_model_or_rubric_does_not_go_on_with_the_same_file(tmp_path):
    where, output = place(tmp_path), tmp_path / "audit.jsonl"
    audit([Say(audit_answer(5))], [where], output)
    text = output.read_text()
    output.write_text(text.replace(f'"model": "{MODEL}"', '"model": "another"', 1))
    with pytest.raises(ValueError, match=f"was made with model 'another' and now it is '{MODEL}'"):
        audit([], [where], output)
    output.write_text(text.replace('"minimum": 3', '"minimum": 2', 1))
    with pytest.raises(ValueError, match="was made with rubric"):
        audit([], [where], output)


def test_a_file_that_is_no_audit_is_refused(tmp_path):
    path = tmp_path / "audit.jsonl"
    with pytest.raises(ValueError, match="no such file"):
        read_audit(path)
    path.write_text('{"kind": "something"}\n')
    with pytest.raises(ValueError, match="cannot be read"):
        read_audit(path)


def test_the_report_counts_what_failed_and_what_it_cost(tmp_path):
    places = [place(tmp_path / "pool", index=i) for i in range(3)]
    reject = {"kind": "verifier_too_weak", "quote": "def test_", "why": "so"}
    answers = {
        "write-0": Say(audit_answer(5)),
        "write-1": Say("hm"),
        "write-2": Say(audit_answer(5, verifier_coverage=1, rejects=[reject])),
    }
    output = tmp_path / "audit.jsonl"
    audit(by_instruction(places, answers), places, output)
    head, verdicts = read_audit(output)
    lines = list(audit_lines(head, verdicts))
    assert "tasks      3: 1 accept, 0 borderline, 1 reject, 1 failed" in lines
    assert any(line.startswith("cost       3 calls, 300 prompt and 30 completion tokens") for line in lines)
    assert any("1 no_json" in line for line in lines) and "    1 tasks given up at: no_json" in lines
    assert "    verifier_too_weak 1" in lines
    by_task = {verdict.task_id: verdict_line(verdict) for verdict in verdicts}
    assert by_task["write-2"].startswith(
        "reject     write-2  quality 0.90, verifier_too_weak, verifier_coverage 1"
    )
    assert by_task["write-1"].startswith("failed     write-1  audit: no valid answer in 1")


def test_repaired_tasks_are_written_beside_the_pool_and_say_where_they_come_from(tmp_path):
    where = place(tmp_path / "pool")
    path, linked = where.directory / "instruction.md", tmp_path / "linked.md"
    linked.write_text(CANARY + path.read_text())
    before = linked.read_text()
    path.unlink()
    path.symlink_to("../../linked.md")
    script = [Say(audit_answer(3)), Say(repair_answer()), Say(audit_answer(5))]
    verdict, server = judge(script, where)
    assert "canary" not in server.asked[0]["messages"][1]["content"].split("===")[1]
    output = tmp_path / "repaired"
    assert write_repaired([verdict], directories={where.task_id: where.directory}, output=output) == [
        where.task_id
    ]
    written = output / where.task_id
    assert (written / "instruction.md").read_text() == CANARY + verdict.repair.instruction
    assert linked.read_text() == before  # the pool is as it was
    task = load_task(written)
    assert task.instruction == verdict.repair.instruction
    said = tomllib.loads((written / "task.toml").read_text())["metadata"]["instruction_repair"]
    assert said["model"] == MODEL and said["after_sha256"] == verdict.repair.after_sha256
    assert task.test_names == load_task(where.directory).test_names
    with pytest.raises(ValueError, match="exists"):
        write_repaired([verdict], directories={}, output=output)


@pytest.mark.parametrize("settings", ["metadata = {}\n", "[metadata.instruction_repair]\nmodel = 'other'\n"])
def test_settings_that_have_no_room_for_a_repair_are_refused_before_anything_is_written(tmp_path, settings):
    where = place(tmp_path / "pool")
    (where.directory / "task.toml").write_text(settings)
    verdict, _ = judge([Say(audit_answer(3)), Say(repair_answer()), Say(audit_answer(5))], where)
    with pytest.raises(ValueError, match=r"write-0: its task\.toml cannot take a table"):
        write_repaired([verdict], directories={where.task_id: where.directory}, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_is_shown_as_one_and_what_it_leads_to_is_not(tmp_path):
    where = place(tmp_path)
    (tmp_path / "secret").write_text("of the host")
    (where.directory / "environment" / "link").symlink_to(tmp_path / "secret")
    shown = task_text(where.directory, instruction="do it", max_chars=100_000)
    assert "of the host" not in shown and f"[a link to {tmp_path / 'secret'}]" in shown


def test_what_does_not_fit_is_cut_and_says_so(tmp_path):
    where = place(tmp_path)
    (where.directory / "environment" / "picture.bin").write_bytes(b"\xff\xfe\x00")
    instruction = (where.directory / "instruction.md").read_text()
    whole = task_text(where.directory, instruction=instruction, max_chars=100_000)
    assert "[binary, 3 bytes]" in whole and "are not shown" not in whole
    short = task_text(where.directory, instruction=instruction, max_chars=len(instruction) + 10)
    assert instruction.strip() in short and "more characters are not shown]" in short
    assert len(short) < len(whole)


def test_each_question_has_a_hash_of_its_own():
    questions = [audit_messages("a"), audit_messages("b"), repair_messages("a", findings=["x"])]
    assert len({prompt_hash(question) for question in questions}) == 3
    assert prompt_hash(audit_messages("a")) == prompt_hash(audit_messages("a"))


@pytest.mark.parametrize("change", [{"max_retries": -1}, {"max_chars": 0}, {"num_parallel": 0}])
def test_plans_that_cannot_be_are_refused(change):
    with pytest.raises(ValueError, match="must be at least"):
        AuditPlan(**change)
