"""Every way to execute over the socket: at once, later, fenced, reusable, AIDL's burst."""
