"""The command line: each flag is one job, and its exit status says whether the job succeeded."""

import argparse
import sys

from bench import check, paper_table, support_matrix


def main(arguments: list[str] | None = None) -> int:
    """Run the job that the arguments name and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    job = parser.add_mutually_exclusive_group(required=True)
    job.add_argument(
        "--check", action="store_true", help="check every operator on the accelerator that is present"
    )
    job.add_argument("--support-matrix", action="store_true", help="write the support matrix into README.md")
    job.add_argument(
        "--paper-table", action="store_true", help="print optimizer memory beside Table 3 of the Clean paper"
    )
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"), help="device type to check")
    options = parser.parse_args(arguments)
    if options.check:
        return check.main(options.device)
    if options.paper_table:
        return paper_table.main()
    return support_matrix.main()


if __name__ == "__main__":
    sys.exit(main())
