// Loaded before the service: shifts its process clock by PURSER_TEST_SKEW_MS.
const skewMs = Number(process.env.PURSER_TEST_SKEW_MS ?? 0);
const RealDate = Date;
const now = RealDate.now.bind(RealDate);
globalThis.Date = class extends RealDate {
  constructor(...args) {
    if (args.length === 0) super(now() + skewMs);
    else super(...args);
  }
  static now() {
    return now() + skewMs;
  }
};
