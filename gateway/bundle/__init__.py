"""The bundle: reading a folder, checking it, and turning it into one revision that can be activated."""

from gateway.bundle.case_runs import Evaluate, Evaluation, run_cases
from gateway.bundle.check import OpenEvaluator, Report, RunTests, check_bundle, check_files, check_folder
from gateway.bundle.folder import compute_revision
from gateway.bundle.load import CheckedBundle, load_bundle, load_files

__all__ = [
    "CheckedBundle",
    "Evaluate",
    "Evaluation",
    "OpenEvaluator",
    "Report",
    "RunTests",
    "check_bundle",
    "check_files",
    "check_folder",
    "compute_revision",
    "load_bundle",
    "load_files",
    "run_cases",
]
