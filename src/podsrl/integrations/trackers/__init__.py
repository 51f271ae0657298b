"""Runs in W&B, TensorBoard, trackio and MLflow: each gets the lines of a run's logs, its figures and recorded groups.

Every tracker is a process of its own that reads the run's folder while the run goes on (`follow.py`); the run itself
only starts and ends it (`start.py`). So a tracker that fails, hangs or is killed cannot stop the run or change it.

    RUN/trackers/NAME/        the files of the tool (tools.py)
                 NAME.json    the tool's id of the run, and the steps that it has
                 NAME.log     what the tool printed
"""

from podsrl.integrations.trackers.start import tracking

__all__ = ["tracking"]
