"""Lessons: small experiments in distributed training, run here, with a conclusion drawn from their own numbers."""

from common import command_line
from launch.lesson.pipeline import Pipeline
from launch.lesson.sends import Sends
from launch.lesson.warmup import Warmup

PROGRAM = "python -m launch.lessons"
DESCRIPTION = "Runs a small experiment in distributed training and prints its result."
LESSONS = Warmup | Sends | Pipeline

if __name__ == "__main__":
    command_line.main(lambda lesson: lesson.run(), LESSONS, PROGRAM, DESCRIPTION)
