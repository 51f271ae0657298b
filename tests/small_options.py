"""Options of a run that takes seconds, as words of a command line."""

SMALL = (
    "--rollouts.num_prompts=2",
    "--rollouts.num_rollouts=8",
    "--select.num_kept=4",
    "--rollouts.max_new_tokens=24",
    "--task.num_eval=8",
    "--eval.every_seconds=0",
    "--stop.seconds=0",
)
