/* Writes lines to stderr: only if NNBURST_LOG is set, except the line with the reason why no interpreter
 * starts. */
#ifndef NNB_CAPI_LOG_H
#define NNB_CAPI_LOG_H

/* Writes why a call was refused, if NNBURST_LOG is INFO or DEBUG. */
__attribute__((format(printf, 1, 2))) void nnb_log(const char *format, ...);

/* Writes a line in any case. */
__attribute__((format(printf, 1, 2))) void nnb_complain(const char *format, ...);

#endif
