#include <android/NeuralNetworks.h>
