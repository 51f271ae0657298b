from loops import each
from podsrl.score.rewards.stated import correct, format
from podsrl.types import Task

TASK = Task(id="47+85", prompt="What is 47 + 85?\n", answer="132")


@each(
    ("text", "is_correct", "has_format"),
    [
        ("7+5=12 4+8+1=13 Answer: 132.", 1.0, 1.0),
        ("Answer: 132.", 1.0, 1.0),
        ("Answer: 132. \n", 1.0, 1.0),
        ("Answer: 117.", 0.0, 1.0),
        ("Answer: -132.", 0.0, 1.0),
        ("Answer: 0132.", 0.0, 1.0),
        ("Answer: 1132.", 0.0, 1.0),
        ("Answer: 132", 0.0, 0.0),
        ("Answer: 132. Done", 0.0, 0.0),
        ("Answer: 132.5.", 0.0, 0.0),
        ("Answer:132.", 0.0, 0.0),
        ("answer: 132.", 0.0, 0.0),
        ("Answer: .", 0.0, 0.0),
        ("Answer: ١٣٢.", 0.0, 0.0),
        ("132.", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("Answer: 117. Answer: 132.", 0.0, 0.0),
        ("Answer: 132. Answer: 132.", 0.0, 0.0),
        ("Answer: Answer: 132.", 0.0, 0.0),
    ],
)
def test_only_a_single_final_answer_counts(text: str, is_correct: float, has_format: float) -> None:
    assert (correct(TASK, text), format(TASK, text)) == (is_correct, has_format)


def test_negative_answers_and_answers_in_words_can_be_right() -> None:
    assert correct(Task(id="a", prompt="3-5=", answer="-2"), "Answer: -2.") == 1.0
    words = Task(id="b", prompt="Capital of France?", answer="Paris")
    assert (correct(words, "Answer: Paris."), format(words, "Answer: Paris.")) == (1.0, 0.0)


def test_the_reference_answer_is_text_and_no_pattern() -> None:
    assert correct(Task(id="a", prompt="?", answer="1.2"), "Answer: 132.") == 0.0
    assert correct(Task(id="a", prompt="?", answer=".*"), "Answer: 132.") == 0.0
