"""`python -m benchmarks judges`: rules for answers on labelled texts."""

from benchmarks.judges import labelled


def test_each_rule_is_counted_by_what_it_refuses_and_what_it_pays() -> None:
    texts = {"#### 18": True, "So $18$ eggs.": True, "It is 17 or 18": False, "She has 18.": True, "17": False}
    rows = [{"text": text, "answer": "18", "question": "", "right": right} for text, right in texts.items()]
    found = {name: labelled.verdicts(rows, judge) for name, judge in labelled.JUDGES.items()}
    assert found["`math_correct`"] == {"refused": [], "falsely_paid": []}
    assert found["lm-evaluation-harness, strict"] == {"refused": [1, 3], "falsely_paid": []}
    assert found["lm-evaluation-harness, flexible"] == {"refused": [], "falsely_paid": [2]}


def test_the_table_counts_apart_what_the_limit_cut() -> None:
    judges = {"one": {"refused": [0, 2], "falsely_paid": [4]}}
    text = labelled.page({"num_rows": 9, "num_right": 5, "cut": [2, 3], "judges": judges})
    assert text.splitlines()[-1] == "| one | 2 | 1 | 1 |"
    assert text.splitlines()[0].endswith("| of 4 wrong ones paid |")
