"""What a worker keeps for its client: outbox, scheduler, fences, liveness."""
