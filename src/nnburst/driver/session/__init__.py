"""What a worker knows of its client: outbox, scheduler, fences, liveness."""
