"""What a scheduler is to the throw-away cluster (see cluster.py): files, daemons, states of nodes, jobs."""


class Scheduler:
    needs = {}         # Debian package -> commands
    daemons = ()       # names of root's programs that are the nodes' own, and no job's
    node_daemon = ""   # the one of a node
    setuid = False     # its commands for users are set-user-id

    def __init__(self, cluster):
        self.cluster = cluster
        self.env = {}  # what its commands want to be told

    @classmethod
    def why_not(cls):
        """Why it cannot run here although all of `needs` is there, or None."""
        return None

    def binds(self, name):
        """Where in the machine what is to be seen: {place: file or directory outside}."""
        return {}

    def write_files(self):
        """Before the machines start."""

    def start_head(self):
        """Returns when it takes jobs."""
        raise NotImplementedError

    def start_node(self, name):
        raise NotImplementedError

    def states(self):
        """{"node1": "idle", ...}; "idle" is the only word that is the same for all."""
        raise NotImplementedError

    def jobs(self):
        """Of all that are not over yet, a line each."""
        raise NotImplementedError

    def end_jobs(self):
        raise NotImplementedError
