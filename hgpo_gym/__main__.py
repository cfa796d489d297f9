from hgpo_gym.cli import main

if __name__ == "__main__":
    main()
