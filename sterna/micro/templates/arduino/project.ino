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

// micros() begins anew every 71 minutes.
extern "C" uint64_t platform_nanoseconds(void) {
  static uint32_t last = 0;
  static uint64_t passed = 0;
  const uint32_t now = micros();
  passed += (uint32_t)(now - last);
  last = now;
  return passed * 1000;
}

extern "C" uint32_t platform_stack_bytes(void) { return 0; }

void setup() {
  Serial.begin(115200);
  while (!Serial) {
  }
  project_run();
}

void loop() {}
