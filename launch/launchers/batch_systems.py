"""The batch systems for which a matrix prints jobs: what a job asks each of them for, and how it is submitted."""

from typing import NamedTuple


class JobSyntax(NamedTuple):
    """How a job is written for a batch system, and submitted. `job_scripts.directives` fills the fields of its templates."""

    # The lines by which each job asks for its nodes, cores and time.
    directives: str
    # The text by which it asks for the GPUs of a node, in the place of {gpus}, and for a queue, in that of {queue}.
    gpus: str
    queue: str
    # The command that reads a script from standard input and prints the number of the job, among lines of others.
    submit: str
    # A line that is the number of a job, as a regular expression of sed -E.
    number: str
    # The option by which a job waits for the end of the one before, however that ends.
    after: str
    # The command that cancels the job $1.
    cancel: str


BATCH_SYSTEMS = {
    "slurm": JobSyntax(
        """#SBATCH --job-name=tandem-{sizes}
#SBATCH --nodes={num_nodes}
#SBATCH --ntasks-per-node={ranks_per_node}
#SBATCH --cpus-per-task={num_cores}
#SBATCH --threads-per-core=1{gpus}
#SBATCH --exclusive
#SBATCH --time={time}{queue}
#SBATCH --output=tandem-{sizes}-%j.out
#SBATCH --requeue
#SBATCH --open-mode=append""",
        gpus="\n#SBATCH {gpu_request}", queue="\n#SBATCH {queue_option}={name}", submit="sbatch --parsable",
        number="[0-9]+(;[^ ]+)?", after='"--dependency=afterany:${previous%%;*}"',
        # Behind a semicolon stands the cluster, where that was chosen.
        cancel='case $1 in *";"*) scancel --clusters="${1#*;}" "${1%%;*}" ;; *) scancel "$1" ;; esac',
    ),
    "pbs": JobSyntax(
        """#PBS -N tandem-{sizes}
#PBS -S /bin/bash
#PBS -l select={num_nodes}:{node}
#PBS -l place={place}
#PBS -l walltime={time}{queue}
#PBS -j oe
#PBS -r y""",
        gpus=":ngpus={ranks_per_node}", queue="\n#PBS -q {name}", submit="qsub", number="[0-9]+(\\[\\])?(\\.[A-Za-z0-9_.-]+)?",
        after='-W "depend=afterany:$previous"', cancel='qdel "$1"',
    ),
}  # fmt: skip
