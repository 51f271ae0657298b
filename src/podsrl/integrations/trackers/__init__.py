"""Runs in W&B, TensorBoard, trackio and MLflow: each gets the lines of a run's logs, its figures and recorded groups.

RUN/trackers/NAME/        the files of the tool (tools.py)
             NAME.json    the tool's id of the run, and the steps that it has (follow.py)
             NAME.log     why it was switched off
"""

from podsrl.integrations.trackers.follow import tracking

__all__ = ["tracking"]
