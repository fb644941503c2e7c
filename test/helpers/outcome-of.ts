import { InvalidSetting } from "../../server/core/setting.ts";

/** What the transform of an environment key returns or, if the text is wrong, its valid part and the reasons. */
export function outcomeOf<T>(read: () => T): { value: T; reasons: readonly string[] } {
  try {
    return { value: read(), reasons: [] };
  } catch (error) {
    if (!(error instanceof InvalidSetting)) throw error;
    return { value: error.value as T, reasons: error.reasons };
  }
}
