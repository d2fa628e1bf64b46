/* What a project's main calls: one of these, by the type of the project. */
#ifndef PROJECT_H_
#define PROJECT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs until all is done, or for ever. Returns 0, or another number if it failed. */
int32_t project_run(void);

#ifdef __cplusplus
}
#endif

#endif /* PROJECT_H_ */
