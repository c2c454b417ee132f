"""Memory of executions: pools with numpy views, buffers that the driver keeps, staging."""
