"""Steps: how operations become them, their models, what crosses their boundaries, roles of memories."""
