import { SegmentedControl, useMantineColorScheme } from "@mantine/core";
import type { ReactNode } from "react";
import { MoonIcon, SunIcon, SystemIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";

const label = (icon: ReactNode, text: string): ReactNode => (
  <>
    {icon}
    {text}
  </>
);

const OPTIONS = [
  { value: "light" as const, label: label(<SunIcon size={16} />, "Light") },
  { value: "dark" as const, label: label(<MoonIcon size={16} />, "Dark") },
  { value: "auto" as const, label: label(<SystemIcon size={16} />, "System") },
];

export function Theme(): ReactNode {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <Section title="Theme" hint="Saved in this browser.">
      <SegmentedControl
        aria-label="Theme"
        value={colorScheme}
        onChange={setColorScheme}
        data={OPTIONS}
      />
    </Section>
  );
}
