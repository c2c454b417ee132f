"""The HAL's types as each version lays them out: 1.0 to 1.3 and AIDL, and facts about them."""
