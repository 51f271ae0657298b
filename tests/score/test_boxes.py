import pytest

from podsrl.score.boxes import last_box


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{1} and \boxed{ 2 }", "2"),
        (r"\fbox{3}", "3"),
        (r"\boxed{1}, no: \fbox{3}", "3"),
        (r"\fbox{3}, no: \boxed{1}", "1"),
        (r"\boxed{\frac{1}{\sqrt{2}}} and }", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{a \} b} c", r"a \} b"),
        (r"\boxed{1 \boxed{2}}", r"1 \boxed{2}"),
        (r"\boxed{\frac{1}{2}, no: \boxed{3}", "3"),
        (r"\boxed 7.", "7"),
        (r"\boxed\pi$", r"\pi"),
        (r"\boxed {12}", "12"),
        (r"\boxed{}", ""),
        (r"\boxed{7", None),
        (r"\boxed", None),
        ("7", None),
        ("", None),
    ],
)
def test_the_last_box_counts_with_its_braces_balanced(text: str, content: str | None) -> None:
    assert last_box(text) == content
