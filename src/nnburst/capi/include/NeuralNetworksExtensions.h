#include <android/NeuralNetworksExtensions.h>
