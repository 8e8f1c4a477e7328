"""Writes the data of a workload into a folder in a format from which runs read it sample by sample (--data-format)."""

from common import command_line
from launch.conversion.writing import Conversion, run

PROGRAM = "python -m launch.convert_data"

if __name__ == "__main__":
    command_line.main(run, Conversion, PROGRAM, "Converts the data of a workload into a format from which runs read it from disk.")
