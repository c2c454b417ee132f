#include <android/NeuralNetworksOEM.h>
