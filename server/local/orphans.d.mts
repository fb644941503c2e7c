export function endOrphan(pidFile: string, signal: NodeJS.Signals): Promise<void>;
