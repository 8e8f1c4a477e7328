# Before any module here imports a package that only the folder of launch/setup.sh --light may have.
import common  # noqa: F401
