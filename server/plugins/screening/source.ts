/** Where the operator's answers come from. */
export interface ScreeningSource {
  /** Those of these addresses that are blocked, all in lower case. Throws ScreeningFailed if that is not known now. */
  blockedAmong(addresses: readonly string[]): Promise<readonly string[]>;
  /** Of a list: how old it is. */
  ageSeconds?(): number;
  close(): void | Promise<void>;
}

export class ScreeningFailed extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "ScreeningFailed";
  }
}
