"""Make `theory_strategies` importable whatever directory pytest is started from."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
