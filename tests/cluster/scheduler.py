"""The interface of a scheduler to the temporary cluster (see cluster.py): files, daemons, states of nodes, jobs."""


class Scheduler:
    needs = {}         # Debian package -> commands
    daemons = ()       # names of root's programs that belong to a node, and to no job
    node_daemon = ""   # the daemon of a node
    setuid = False     # its commands for users are set-user-id

    def __init__(self, cluster):
        self.cluster = cluster
        self.env = {}  # variables that its commands require

    @classmethod
    def why_not(cls):
        """Return why the scheduler cannot run on this host although `needs` are met, or None."""
        return None

    def binds(self, name):
        """Return {path in the machine: file or directory outside} of the scheduler's mounts."""
        return {}

    def write_files(self):
        """Write the configuration, before the machines start."""

    def clean_up(self):
        """Remove what it has left on the host, once all processes of the machines have been killed."""

    def start_head(self):
        """Start the daemons of ctl; return when they accept jobs."""
        raise NotImplementedError

    def start_node(self, name):
        raise NotImplementedError

    def wait_lost(self, name):
        """Wait until the scheduler has noticed the crash of a node, if it must before the node restarts."""

    def logs(self, name):
        """Return the paths of its logs of a machine, except those in the cluster's own directory of logs."""
        return []

    def states(self):
        """Return {"node1": "idle", ...}; "idle" is the only state that all schedulers share."""
        raise NotImplementedError

    def jobs(self):
        """Return one line for each job that has not ended."""
        raise NotImplementedError

    def end_jobs(self):
        raise NotImplementedError
