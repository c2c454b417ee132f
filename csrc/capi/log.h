/* Writes lines to stderr: only if NNBURST_LOG is set, except the one with the reason why no interpreter starts. */
#ifndef NNB_CAPI_LOG_H
#define NNB_CAPI_LOG_H

/* Why a call was refused; nothing unless NNBURST_LOG is INFO or DEBUG. */
__attribute__((format(printf, 1, 2))) void nnb_log(const char *format, ...);

/* One line on stderr in any case. */
__attribute__((format(printf, 1, 2))) void nnb_complain(const char *format, ...);

#endif
