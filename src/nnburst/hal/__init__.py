"""The HAL's vocabulary: types, statuses, limits, models, requests, signatures and validation.

Every other layer imports this one; it imports none of them and no device, queue or socket.
"""
