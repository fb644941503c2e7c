// The problems that an environment has.
import { ConfigError, loadConfig, type Environment } from "../../server/config.ts";

export function problemsOf(environment: Environment): string[] {
  try {
    loadConfig(environment);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}
