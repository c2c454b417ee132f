"""Between the layouts of one version and the canonical types, one module for each family of types."""
