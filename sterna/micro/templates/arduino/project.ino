// An Arduino board as a platform: Serial is for text, and it is the byte stream.

#include "src/platform.h"
#include "src/project.h"

extern "C" void platform_print(const char *text) { Serial.print(text); }

extern "C" void platform_write(const void *bytes, uint32_t size) {
  Serial.write(static_cast<const uint8_t *>(bytes), size);
  Serial.flush();
}

extern "C" int32_t platform_read(void) {
  while (Serial.available() == 0) {
  }
  return Serial.read();
}

extern "C" uint32_t platform_stack_bytes(void) { return 0; }

void setup() {
  Serial.begin(115200);
  while (!Serial) {
  }
  project_run();
}

void loop() {}
