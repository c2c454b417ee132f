#include <android/NeuralNetworksTypes.h>
