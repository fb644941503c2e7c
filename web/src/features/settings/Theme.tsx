import { useMantineColorScheme } from "@mantine/core";
import type { ReactNode } from "react";
import { MoonIcon, SunIcon, SystemIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { Segmented } from "../../components/Segmented.tsx";

const OPTIONS = [
  {
    value: "light",
    label: (
      <>
        <SunIcon size={16} />
        Light
      </>
    ),
  },
  {
    value: "dark",
    label: (
      <>
        <MoonIcon size={16} />
        Dark
      </>
    ),
  },
  {
    value: "auto",
    label: (
      <>
        <SystemIcon size={16} />
        System
      </>
    ),
  },
] as const;

export function Theme(): ReactNode {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <Section title="Theme" hint="Saved in this browser.">
      <Segmented label="Theme" value={colorScheme} onChange={setColorScheme} options={OPTIONS} />
    </Section>
  );
}
