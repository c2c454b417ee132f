"""Many clients against one driver, some of them killed, while another checks results."""
