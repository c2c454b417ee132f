"""Bursts in the driver: over message queues, and AIDL's over the control channel."""
