import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from fixtures import _can_cluster, _four_nodes, cluster, new_cluster  # noqa: E402,F401
