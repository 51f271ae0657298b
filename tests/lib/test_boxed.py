from loops import each
from podsrl.lib.boxed import boxed_answer, boxes, last_box


@each(
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
def test_the_last_box_of_a_completion_counts_with_its_braces_balanced(text: str, content: str | None) -> None:
    assert last_box(text) == content


@each(
    ("text", "answer"),
    [
        (r"\boxed{5}", "5"),
        (r"so it is $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"\boxed{\left\{ x \mid \sqrt{x^{2}} = {1} \right\}} holds", r"\left\{ x \mid \sqrt{x^{2}} = {1} \right\}"),
        (r"\boxed{\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
        (r"\boxed{1 \\}", r"1 \\"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\fbox{12}", "12"),
        (r"\boxed {7}", "7"),
        ("\\boxed{\n  7\n}", "7"),
        (r"$\boxed 5$", "5"),
        (r"$\boxed 12.$ and more", "12"),
        (r"$x = \boxed \frac{1}{2}$", r"\frac{1}{2}"),
        (r"\boxed 5 is it", "5"),
        (r"$\boxed-3$", "-3"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\fbox{1} then \boxed{2}", "2"),
        (r"\boxed{1} then \fbox{2}", "2"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"done: \boxed{4}. Or \boxed{5", "4"),
        (r"\boxed{6} \boxed{}", "6"),
        (r"\boxed{5", None),
        (r"\boxed{}", None),
        (r"\boxed", None),
        (r"\boxedanswer{5}", None),
        ("no box", None),
        ("", None),
    ],
)
def test_the_last_box_of_a_solution_is_the_answer(text: str, answer: str | None) -> None:
    assert boxed_answer(text) == answer


def test_boxes_know_where_they_stand() -> None:
    text = r"a \boxed{1} \fbox 2 \boxed{3 \boxed{4}"
    assert [(text[box.start : box.end], box.content, box.is_closed) for box in boxes(text)] == [
        (r"\boxed{1}", "1", True),
        (r"\fbox 2", "2", True),
        (r"\boxed{3 \boxed{4}", r"3 \boxed{4}", False),
        (r"\boxed{4}", "4", True),
    ]


def test_an_escaped_command_is_a_box_of_a_solution_alone() -> None:
    text = r"1 \\\boxed{2} \\boxed{3}"
    assert (last_box(text), boxed_answer(text)) == ("2", "3")
