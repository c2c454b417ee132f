/* The engine's operators that can be written into a file, and their options, which are structs in the engine.
 * */
#ifndef NNB_DELEGATE_OPERATORS_H
#define NNB_DELEGATE_OPERATORS_H

#include "litert_delegate/flat.h"
#include "plugin/driver.h"

struct nnb_operator;

/* Finds an operator by its number in the format; NULL for unknown ones. */
const struct nnb_operator *nnb_operator_find(int32_t code);

const char *nnb_operator_name(const struct nnb_operator *operator);

/* The number of the table in the union of options; 0 of an operator without options. */
uint32_t nnb_operator_union(const struct nnb_operator *operator);

/* Whether 16-bit inputs need a bias, whose type gives the number of bits in which products are added up. */
bool nnb_operator_wants_bias(const struct nnb_operator *operator);

/* Whether the options of a node of this version can be written. */
bool nnb_operator_check(const struct nnb_operator *operator, int version, const void *options, struct nnb_reason *reason);

/* Writes options that were checked; returns the table's place. */
size_t nnb_operator_write(const struct nnb_operator *operator, int version, const void *options, struct nnb_flat *flat);

#endif
